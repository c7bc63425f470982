"use strict";

dashboard.start("figures", (place, data) => {
  const { element, link, commit, time, badge, empty, state, remember, select, search, spark, load, chart } = dashboard;
  if (!data.figures.length) {
    place.replaceChildren(empty("No figures yet", data.empty, data.example));
    return;
  }

  const machines = [...new Set(data.figures.map((figure) => figure.machine))].sort();
  const machine = select("Machine", "machine", machines.map((name) => [name, name]), "all machines");
  const words = search("Search", "q", "title, method, what it sizes");
  const list = element("div", { class: "figures" });
  const count = element("p", { class: "quiet small", "aria-live": "polite" });
  machine.node.addEventListener("change", show);
  words.node.addEventListener("input", show);
  place.replaceChildren(
    element("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      machine.label, words.label), count, list);

  function reasonOf(record) {
    const parts = [];
    if (record.factor) parts.push(element("strong", {}, record.factor), ` ${record.factorWords}. `);
    if (record.reason) parts.push(record.reason);
    return parts.length ? element("p", { class: "reason" }, parts) : null;
  }

  function recordItem(record) {
    const pairs = [["Method", record.method], ["Conditions", record.conditions], ["Evidence", record.evidence]];
    return element("li", { class: record.current ? "current" : "" },
      element("div", {}, record.current ? element("strong", {}, record.text) : element("s", {}, record.text), " ",
        badge(record.kind), " ", element("span", { class: "quiet small" }, record.current ? "now, since " : "superseded, from ",
          time(record.date))),
      reasonOf(record),
      element("dl", { class: "pairs small" }, pairs.filter(([, text]) => text)
        .map(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]),
      record.commit && [element("dt", {}, "Commit"), element("dd", {}, commit(record.commit))]));
  }

  function card(figure) {
    const now = figure.records.find((record) => record.current) ?? figure.records[0];
    const before = figure.records.filter((record) => !record.current);
    const body = element("div");
    const details = element("details", {}, element("summary", {}, before.length
      ? `Why it changed, and ${figure.records.length} records` : "How it was measured"), body);
    details.addEventListener("toggle", () => {
      if (!details.open) return;
      remember({ figure: figure.key });
      if (body.childElementCount) return;
      body.append(element("ol", { class: "records" }, figure.records.map(recordItem)));
      if (figure.checks.length) {
        body.append(element("h3", {}, "Cross-checks"), element("ul", {}, figure.checks.map((check) =>
          element("li", {}, element("strong", {}, check.closes ? "closes" : "does not close"), `: ${check.text}`))));
      }
      if (figure.chunk !== null) {
        const box = element("div", { class: "chart" });
        body.append(element("h3", {}, "History"), box);
        load(figure.chunk).then((series) => drawSeries(box, series[figure.key], figure.title));
      }
    });
    const open = state().get("figure") === figure.key;
    const node = element("article", { class: "card figure", id: `figure-${figure.key}` },
      element("header", {}, element("div", {}, element("h2", { class: "title" }, figure.title),
        figure.sizes && element("p", { class: "quiet small sizes" }, `sizes ${figure.sizes}`)), badge(now.kind)),
      element("div", { class: "row" }, element("div", { class: "value" }, now.number, element("small", {}, now.unit)),
        spark(figure.spark, figure.sparkWords)),
      before.length ? element("p", { class: "was" }, element("span", { class: "only-read" }, "superseded: "),
        element("s", {}, before[0].text), now.factor && ` now ${now.factor} of it`) : null,
      element("div", { class: "meta" }, element("span", {}, figure.machine), element("span", {}, time(now.date)),
        figure.graph && link(figure.graph, "graph of its benchmark")),
      details);
    if (open) queueMicrotask(() => { details.open = true; });
    return node;
  }

  function drawSeries(box, series, title) {
    return chart(box, "series", { points: series.points, levels: series.levels, marks: series.marks }, { unit: series.unit },
      `${title}: history of ${series.points.length} values in ${series.unit}`);
  }

  function show() {
    const at = machine.node.value, text = words.node.value.trim().toLowerCase();
    remember({ machine: at, q: words.node.value.trim() });
    const found = data.figures.filter((figure) => (!at || figure.machine === at)
      && (!text || `${figure.title} ${figure.sizes} ${figure.id} ${figure.records.map((r) => r.method).join(" ")}`
        .toLowerCase().includes(text)));
    count.textContent = found.length === data.figures.length ? "" : `${found.length} of ${data.figures.length} figures`;
    list.replaceChildren(...(found.length ? found.map(card)
      : [empty("No figure matches", "Clear the search or choose another machine.")]));
    const wanted = state().get("figure");
    if (wanted) document.getElementById(`figure-${wanted}`)?.scrollIntoView({ block: "nearest" });
  }

  show();
});
