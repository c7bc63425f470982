"use strict";

dashboard.start("events", (place, data) => {
  const { element, link, commit, time, badge, empty, state, remember, select, search, load, chart, kinds } = dashboard;
  if (!data.events.length) {
    place.replaceChildren(empty("Nothing has changed yet", data.empty, data.example));
    return;
  }

  const PAGE = 50;
  const unique = (name) => [...new Set(data.events.map((event) => event[name]))].sort();
  const machine = select("Machine", "machine", unique("machine").map((name) => [name, name]), "all machines");
  const words = search("Benchmark or figure", "benchmark", "part of a name or parameter");
  const chosen = new Set((state().get("kind") ?? "").split(",").filter((kind) => kinds.includes(kind)));
  const seen = new Set(data.events.map((event) => event.kind));
  const always = ["correction", "regression", "improvement", "environment", "confounded", "unverified"];
  const chips = element("div", { class: "chips" }, kinds.filter((kind) => seen.has(kind) || always.includes(kind)).map((kind) => {
    const count = element("span", { class: "count" });
    const node = element("button", { type: "button", class: "chip", "aria-pressed": String(chosen.has(kind)), "data-kind": kind },
      badge(kind), count);
    node.addEventListener("click", () => {
      if (!chosen.delete(kind)) chosen.add(kind);
      node.setAttribute("aria-pressed", String(chosen.has(kind)));
      shown = PAGE;
      show();
    });
    return node;
  }));
  const count = element("p", { class: "quiet small", "aria-live": "polite" });
  const line = element("div");
  let shown = PAGE;
  for (const [node, type] of [[machine.node, "change"], [words.node, "input"]]) {
    node.addEventListener(type, () => { shown = PAGE; show(); });
  }
  place.replaceChildren(
    element("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      element("fieldset", {}, element("legend", {}, "Kind"), chips), machine.label, words.label),
    count, line);

  function levels(event) {
    return element("span", { class: "levels" }, event.before, element("span", { class: "arrow", "aria-hidden": "true" }, " → "),
      element("span", { class: "only-read" }, " to "), event.after);
  }

  function pairs(rows) {
    return element("dl", { class: "pairs" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  }

  function table(caption, head, rows) {
    return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
      element("table", {}, element("caption", {}, caption),
        element("thead", {}, element("tr", {}, head.map((text) => element("th", { scope: "col" }, text)))),
        element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell, at) =>
          element(at ? "td" : "th", at ? {} : { scope: "row" }, cell)))))));
  }

  /* A commit with the subject of its message, where the repository was at hand. */
  function says(entry, hash, subjects) {
    return entry && [commit(entry), subjects[hash] ? ` ${subjects[hash]}` : ""];
  }

  async function fill(body, event) {
    const [chunk, subjects] = await Promise.all([load(event.chunk), load("commits")]);
    const detail = chunk[event.id];
    const box = element("div", { class: "chart" });
    body.replaceChildren(
      element("p", {}, detail.status && element("strong", {}, `First known as: ${detail.status}. `), detail.words),
      detail.notes.length ? element("ul", { class: "notes small" }, detail.notes.map((note) => element("li", {}, note))) : "",
      box,
      element("div", { class: "evidence" },
        pairs([["Before", event.before], ["After", event.after], ["Factor", event.factor && `${event.factor} ${detail.factorInterval ?? ""}`],
          ["By the method", detail.methodFactor], ["By the world", detail.worldFactor], ["Method before", detail.versionBefore],
          ["Method after", detail.versionAfter], ["Conditions before", detail.conditionsBefore],
          ["Conditions after", detail.conditionsAfter], ["Evidence", detail.evidence],
          ["Last commit before", says(detail.commitBefore, detail.commits[0], subjects)], ["First commit after", says(event.commit, detail.commits.at(-1), subjects)],
          ["Undone by", commit(detail.undoneBy)], ["Takes back", commit(detail.undoes)],
          ["Figures", detail.figures.length && detail.figures.map((name) => [link(`figures.html#q=${encodeURIComponent(name)}`, name), " "])],
          ["Environment", detail.environment]]),
        detail.arms.length ? table("Arms the change could not touch, or measured again", ["arm", "before", "after", "factor", "it"],
          detail.arms.map((arm) => [arm.name, arm.before, arm.after, arm.factor, arm.moved])) : null,
        detail.facts.length ? table("Facts before and after", ["fact", "before", "after"],
          detail.facts.map((fact) => [fact.name, fact.before, fact.after])) : null),
      element("p", { class: "meta" }, detail.graph && link(detail.graph, "asv's graph of this series"),
        link(`#event=${event.id}`, "link to this event")));
    if (detail.points.length) {
      await chart(box, "series", { points: detail.points, levels: detail.levels, marks: detail.marks }, { unit: detail.unit },
        `${event.title || event.benchmark} on ${event.machine}: ${detail.points.length} values in ${detail.unit}, from ${event.before} to ${event.after}`);
    } else box.remove();
  }

  function item(event) {
    const body = element("div", { class: "body" });
    const node = element("details", { class: "card event", id: `event-${event.id}` },
      element("summary", {}, badge(event.kind),
        element("span", { class: "what" }, element("strong", {}, event.title || event.benchmark),
          event.title ? ` ${event.benchmark}` : "", event.cell && ` ${event.cell}`),
        levels(event),
        element("span", { class: "meta" }, element("span", {}, event.factor), element("span", {}, event.machine),
          element("span", {}, time(event.date)), element("code", {}, event.commit?.short ?? ""),
          event.undone && element("span", {}, "undone later"))),
      body);
    node.addEventListener("toggle", () => {
      if (!node.open) return;
      remember({ event: event.id });
      if (!body.childElementCount) {
        fill(body, event).catch((error) => {
          console.error(error);
          body.replaceChildren(element("p", {}, `The evidence could not be loaded: ${error.message}.`));
        });
      }
    });
    return node;
  }

  /* Events of one kind at one commit of one machine have one cause, so many of them make one entry. */
  function group(events) {
    const [first] = events;
    const names = [...new Set(events.map((event) => event.title || event.benchmark))];
    const body = element("div", { class: "body" });
    const node = element("details", { class: "card event group" },
      element("summary", {}, badge(first.kind), element("span", { class: "what" },
        element("strong", {}, `${events.length.toLocaleString("en")} series`), ` of ${names.slice(0, 3).join(", ")}${names.length > 3
          ? ` and ${names.length - 3} more` : ""}`),
      element("span", { class: "levels" }, range(events)),
      element("span", { class: "meta" }, element("span", {}, first.machine), element("span", {}, time(first.date)),
        element("code", {}, first.commit?.short ?? ""))), body);
    node.addEventListener("toggle", () => {
      if (node.open && !body.childElementCount) body.append(...events.map(item));
    });
    if (events.some((event) => event.id === state().get("event"))) {
      body.append(...events.map(item));
      node.open = true;
    }
    return node;
  }

  function range(events) {
    const factors = events.map((event) => event.factor).filter(Boolean).sort((a, b) => Number(a.slice(1)) - Number(b.slice(1)));
    if (!factors.length) return "";
    return factors[0] === factors.at(-1) ? factors[0] : `${factors[0]} to ${factors.at(-1)}`;
  }

  function show() {
    const at = machine.node.value, text = words.node.value.trim().toLowerCase();
    remember({ kind: [...chosen].join(","), machine: at, benchmark: words.node.value.trim() });
    const rest = data.events.filter((event) => (!at || event.machine === at)
      && (!text || `${event.title} ${event.benchmark} ${event.cell}`.toLowerCase().includes(text)));
    for (const chip of chips.children) {
      chip.querySelector(".count").textContent = rest.filter((event) => event.kind === chip.dataset.kind).length.toLocaleString("en");
    }
    const found = rest.filter((event) => !chosen.size || chosen.has(event.kind));
    const wanted = state().get("event");
    const place = found.findIndex((event) => event.id === wanted);
    if (place >= shown) shown = place + 1;
    count.textContent = `${found.length.toLocaleString("en")} of ${data.events.length.toLocaleString("en")} events`;
    const blocks = [];
    let month = null, items = null;
    const groups = new Map();
    for (const event of found) {
      const key = JSON.stringify([event.kind, event.machine, event.date, event.commit?.short]);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(event);
    }
    let left = shown;
    for (const events of groups.values()) {
      if (left <= 0) break;
      left -= events.length;
      const [event] = events;
      if (event.date.slice(0, 7) !== month) {
        month = event.date.slice(0, 7);
        items = element("ul", { class: "events" });
        blocks.push(element("h2", { class: "when" }, event.month), items);
      }
      items.append(...(events.length > 3 ? [events] : events.map((one) => [one]))
        .map((some) => element("li", {}, some.length > 1 ? group(some) : item(some[0]))));
    }
    if (!found.length) blocks.push(empty("No event matches", "Take a kind or the machine out of the filters, or search for less."));
    if (left < 0) shown -= left; // a group is shown whole
    if (found.length > shown) {
      blocks.push(element("button", { type: "button", class: "plain more",
        onclick: () => { shown += PAGE; show(); } }, `Show ${Math.min(PAGE, found.length - shown)} more`));
    }
    line.replaceChildren(...blocks);
    if (place >= 0) {
      const node = document.getElementById(`event-${wanted}`);
      node.open = true;
      node.scrollIntoView({ block: "center" });
    }
  }

  show();
});
