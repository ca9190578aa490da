def train(net, batches):
    total = 0.0
    for batch in batches:
        X = batch.to("cuda")
        loss = net(X).sum()
        loss.backward()
        total += loss.item()
        prepare(batch)
    return total
