// Page with tables only: one section per table, in order.
data.tables.forEach((table, at) => {
  const [id, title, filter] = [`table-${at}`, `title-${at}`, `filter-${at}`];
  $("sections").append(make("a", { href: `#${title}` }, table.title));
  const input = make("input", { id: filter, type: "search", autocomplete: "off" });
  const matches = make("span", { role: "status" });
  document.querySelector("main").append(make("section", { "aria-labelledby": title },
    make("h2", { id: title }, table.title),
    make("p", {}, table.about),
    make("div", { class: "bar" }, make("label", {}, "Filter ", input), matches),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${table.title}` }, make("table", { id })),
  ));
  const draw = tableDrawer(id, table.table, { filter: () => input.value });
  draw();
  input.addEventListener("input", () => { matches.textContent = draw(); });
});
document.documentElement.dataset.ready = "yes";
