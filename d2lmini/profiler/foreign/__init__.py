def find_file(path):
    return str(path)


def read_foreign(file, members):
    raise NotImplementedError
