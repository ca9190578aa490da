// The box of a prediction (d2l/prediction.py). The kernel tells the question and what was typed
// before (always header.whole); from here goes { kind: "predict", text } when the text changes.

function take(told, { question, text }) {
  Object.assign(told, { question, text });
}

function build(told, model, el) {
  el.classList.add("d2l-prediction");
  const input = element("input", {
    class: "d2l-input", type: "text", size: 24, placeholder: "your prediction",
    "data-lm-suppress-shortcuts": "true",
    oninput: () => model.send({ kind: "predict", text: input.value }),
    onkeydown: (event) => event.stopPropagation(),  // no command of the notebook
  });
  const question = element("span");
  const state = element("span", { class: "d2l-quiet", role: "status" });
  el.append(element("label", { class: "d2l-bar" }, question, input, state));
  const update = () => {
    question.textContent = told.question;
    if (document.activeElement !== input || !input.value) input.value = told.text;
    state.textContent = told.text ? "kept" : "";
  };
  update();
  return { update };
}

export default widgetOf(() => ({ question: "", text: "" }), take, build);
