// Live parts of pages: an element with `data-live` receives its content from a stream of server-sent events.
"use strict";

// Change an element's children to those of another one, and keep the nodes, so that focus and selection stay.
function adopt(element, wanted) {
  const present = [...element.childNodes];
  const next = [...wanted.childNodes];
  next.forEach((node, at) => {
    const own = present[at];
    if (!own) {
      element.append(node);
    } else if (own.nodeName !== node.nodeName) {
      own.replaceWith(node);
    } else if (own.nodeType === Node.ELEMENT_NODE) {
      for (const { name } of [...own.attributes]) {
        if (!node.hasAttribute(name)) own.removeAttribute(name);
      }
      for (const { name, value } of node.attributes) {
        if (own.getAttribute(name) !== value) own.setAttribute(name, value);
      }
      adopt(own, node);
    } else if (own.nodeValue !== node.nodeValue) {
      own.nodeValue = node.nodeValue;
    }
  });
  present.slice(next.length).forEach((node) => node.remove());
}

function follow(element) {
  let events = null;
  const open = () => {
    if (events) return;
    events = new EventSource(element.dataset.live);
    events.onopen = () => element.removeAttribute("data-stale");
    events.onerror = () => {
      element.setAttribute("data-stale", "");
      // A response that is no stream ends the attempts of the browser, such as after the session. Reloading shows why.
      if (events.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 5000);
      }
    };
    events.onmessage = ({ data }) => {
      const wanted = document.createElement("template");
      wanted.innerHTML = data;
      adopt(element, wanted.content);
      if (element.querySelector("[data-done]")) close();
    };
  };
  const close = () => {
    if (events) events.close();
    events = null;
  };
  // A hidden page needs no data, and browsers limit the connections to one server.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  if (!document.hidden) open();
}

document.querySelectorAll("[data-live]").forEach(follow);

// A box that checks all others of its table.
document.querySelectorAll("input[data-all]").forEach((box) => {
  const others = () => box.closest("table").querySelectorAll(`input[name="${box.dataset.all}"]`);
  box.addEventListener("change", () => others().forEach((other) => (other.checked = box.checked)));
  box.hidden = false;
});

// On a narrow screen the current section may be outside of the visible part of the navigation.
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
