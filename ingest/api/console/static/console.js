// Live parts of pages: an element with `data-live` receives its content from a stream of server-sent events.
"use strict";

// Nodes that stand for the same thing before and after a change. Rows may have a `data-key`.
function likeness(node) {
  return node.nodeType === Node.ELEMENT_NODE ? `${node.nodeName} ${node.dataset.key ?? node.getAttribute("class")}` : node.nodeName;
}

// Change an element's children to those of another one, and keep the nodes, so that focus and selection stay.
function adopt(element, wanted) {
  let own = element.firstChild;
  for (const node of [...wanted.childNodes]) {
    let match = own;
    while (match && likeness(match) !== likeness(node)) match = match.nextSibling;
    if (!match) {
      element.insertBefore(node, own);
      continue;
    }
    while (own !== match) {
      const gone = own;
      own = own.nextSibling;
      gone.remove();
    }
    own = match.nextSibling;
    if (match.nodeType !== Node.ELEMENT_NODE) {
      if (match.nodeValue !== node.nodeValue) match.nodeValue = node.nodeValue;
      continue;
    }
    for (const { name } of [...match.attributes]) {
      if (!node.hasAttribute(name)) match.removeAttribute(name);
    }
    for (const { name, value } of node.attributes) {
      if (match.getAttribute(name) !== value) match.setAttribute(name, value);
    }
    adopt(match, node);
  }
  while (own) {
    const gone = own;
    own = own.nextSibling;
    gone.remove();
  }
}

function follow(element) {
  let events = null;
  const open = () => {
    if (events) return;
    events = new EventSource(element.dataset.live);
    events.onopen = () => element.removeAttribute("data-stale");
    events.onerror = () => {
      element.setAttribute("data-stale", "");
      // A response that is no stream ends the attempts of the browser.
      if (events?.readyState === EventSource.CLOSED) {
        close();
        setTimeout(again, 3000);
      }
    };
    events.onmessage = ({ data }) => {
      const wanted = document.createElement("template");
      wanted.innerHTML = data;
      adopt(element, wanted.content);
      if (element.querySelector("[data-done]")) close();
    };
  };
  const again = async () => {
    const page = await fetch(location.href, { method: "HEAD", redirect: "manual" }).catch(() => null);
    // Without a session, the page leads to the login, which leads back to it.
    if (page?.type === "opaqueredirect") location.reload();
    else if (!document.hidden) open();
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
