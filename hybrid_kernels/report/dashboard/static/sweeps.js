"use strict";

dashboard.start("sweeps", (place, data) => {
  const { element, commit, time, empty, remember, select, load, chart } = dashboard;
  if (!data.sweeps.length) {
    place.replaceChildren(empty("No sweep yet", data.empty, data.example));
    return;
  }

  const byKey = new Map(data.sweeps.map((sweep) => [sweep.key, sweep]));
  const options = data.sweeps.map((sweep) => [sweep.key, `${sweep.machine} · ${sweep.device} · ${sweep.date.slice(0, 10)} · ${sweep.commit.short}`]);
  const first = select("Sweep", "sweep", options);
  const second = select("Laid over it", "over", options, "none");
  const log = select("GB/s axis", "axis", [["log", "logarithmic"], ["linear", "from zero"]]);
  const box = element("div", { class: "chart" });
  const facts = element("div", { class: "evidence facts" });
  const numbers = element("div");
  for (const choice of [first, second, log]) choice.node.addEventListener("change", show);
  place.replaceChildren(
    element("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
      element("span", { class: "wide" }, first.label), element("span", { class: "wide" }, second.label), log.label),
    element("div", { class: "card" }, box), facts, numbers);

  function about(sweep) {
    return element("div", { class: "card" }, element("h2", { class: "title" }, sweep.machine),
      element("dl", { class: "pairs" }, [["Device", sweep.device], ["Measured at", commit(sweep.commit)],
        ["Commit of", time(sweep.date)], ...sweep.facts].map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])));
  }

  function table(sweep, points) {
    const sizes = [...new Set(points.map((point) => point.packed_mib))].sort((a, b) => a - b);
    const arms = [...new Set(points.map((point) => point.arm))];
    const cell = new Map(points.map((point) => [`${point.packed_mib} ${point.arm}`, point]));
    const caption = `GB/s of packed bytes, ${sweep.machine}, ${sweep.commit.short}`;
    return element("div", { class: "scroll card", tabindex: "0", role: "group", "aria-label": caption },
      element("table", {}, element("caption", {}, caption),
        element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "packed MiB"),
          arms.map((arm) => element("th", { scope: "col", class: "number" }, arm)))),
        element("tbody", {}, sizes.map((size) => element("tr", {}, element("th", { scope: "row" }, size.toLocaleString("en")),
          arms.map((arm) => {
            const point = cell.get(`${size} ${arm}`);
            return element("td", { class: "number" }, point ? point.text : "–");
          }))))));
  }

  async function show() {
    remember({ sweep: first.node.value === options[0][0] ? "" : first.node.value, over: second.node.value, axis: log.node.value === "log" ? "" : log.node.value });
    const chosen = [first.node.value, second.node.value].filter((key, at, all) => key && all.indexOf(key) === at).map((key) => byKey.get(key));
    const contents = await Promise.all(chosen.map(async (sweep) => (await load(sweep.chunk))[sweep.key]));
    const names = chosen.map((sweep) => (chosen.every((other) => other.machine === chosen[0].machine)
      ? `${sweep.machine} at ${sweep.commit.short}` : `${sweep.machine}, ${sweep.commit.short}`));
    const points = contents.flatMap((content, at) => content.points.map((point) => ({ ...point, series: names[at] })));
    const everywhere = (limit) => contents.every((content) => content.limits.some((other) => other.label === limit.label));
    const limits = contents.flatMap((content, at) => content.limits.filter((limit) => !at || !everywhere(limit))
      .map((limit) => (everywhere(limit) ? limit : { ...limit, label: `${limit.label} (${names[at]})` })));
    facts.replaceChildren(...chosen.map(about));
    numbers.replaceChildren(element("h2", {}, "The numbers"), ...chosen.map((sweep, at) => table(sweep, contents[at].points)));
    await chart(box, `sweep-${chosen.length > 1 ? "overlay" : "single"}-${log.node.value}`, { points, limits }, {},
      `Bandwidth in GB/s by packed size in MiB: ${names.join(" and ")}; the numbers stand in the table below`);
  }

  show();
});
