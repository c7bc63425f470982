"use strict";

dashboard.start("machines", (place, data) => {
  const { element, link, commit, time, empty } = dashboard;
  if (!data.machines.length) {
    place.replaceChildren(empty("No machine has reported yet", data.empty, data.example));
    return;
  }

  const DAY = 86400e3;

  /* The page is static, so how long a machine has been silent is worked out when it is read. */
  function silence(machine) {
    if (!machine.last) return element("span", { class: "state silent" }, "has never reported");
    const days = Math.floor((Date.now() - Date.parse(machine.last)) / DAY);
    const words = days < 1 ? "reported today" : days === 1 ? "reported yesterday" : `has not reported for ${days.toLocaleString("en")} days`;
    return element("span", { class: `state ${days <= data.silentDays ? "fresh" : "silent"}` }, words);
  }

  function card(machine) {
    return element("article", { class: "card", id: `machine-${machine.name}` },
      element("h2", { class: "title" }, machine.name),
      silence(machine),
      element("dl", { class: "pairs" }, [
        ["Last report", machine.last && [time(machine.last), " at ", commit(machine.lastCommit)]],
        ["First report", machine.first && time(machine.first)],
        ["Records", machine.records], ["Commits", machine.commits], ...machine.facts,
      ].filter(([, value]) => value).map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
      element("p", { class: "meta" }, link(`corrections.html#machine=${encodeURIComponent(machine.name)}`, "its events"),
        machine.sweep && link(`sweeps.html#sweep=${encodeURIComponent(machine.sweep)}`, "its sweep")),
      machine.changes.length ? element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Changed facts of ${machine.name}` },
        element("table", {}, element("caption", {}, "What changed, and when"),
          element("thead", {}, element("tr", {}, ["from", "fact", "before", "after"].map((text) => element("th", { scope: "col" }, text)))),
          element("tbody", {}, machine.changes.map((change) => element("tr", {}, element("td", {}, time(change.date)),
            element("th", { scope: "row" }, change.fact), element("td", {}, change.before), element("td", {}, change.after))))))
        : element("p", { class: "quiet small" }, "No fact has changed since the first report."));
  }

  const order = [...data.machines].sort((a, b) => (Date.parse(b.last) || 0) - (Date.parse(a.last) || 0));
  place.replaceChildren(element("div", { class: "machines" }, order.map(card)));
});
