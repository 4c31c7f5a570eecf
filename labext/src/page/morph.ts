/** Attributes that a person has changed by a click, and that Python knows nothing of. */
const OURS = new Set(['open', 'data-asking', 'aria-busy']);

/**
 * Make the children of a node what those of another are, and leave alone what is the same: focus, folds, typed text.
 * What is only named is looked for in `view`, since another page in this document may have an element of the same id.
 */
export function morph(here: Element, next: Element | DocumentFragment, view: Element = here): void {
  const children = [...next.childNodes];
  children.forEach((child, i) => {
    const id = (child as Element).id;
    const place = here.childNodes[i];
    const there = (id && here.children.namedItem(id)) || place;
    if (there?.nodeName !== child.nodeName || ((there as Element).id || '') !== (id || '')) {
      here.insertBefore(child, place ?? null);
      takeBack(child, view);
      return;
    }
    if (there !== place) {
      here.insertBefore(there, place);
    }
    if (child instanceof Element) {
      // Python knows that this page has it.
      if (!child.hasAttribute('data-same')) {
        become(there as Element, child, view);
      }
    } else if (there.nodeValue !== child.nodeValue) {
      there.nodeValue = child.nodeValue;
    }
  });
  while (here.childNodes.length > children.length) {
    here.lastChild!.remove();
  }
}

/** Put elements that Python knows to be in this view where new ones only name them. */
function takeBack(child: ChildNode, view: Element): void {
  if (child instanceof Element) {
    child.querySelectorAll('[data-same]').forEach(named => {
      const there = [...view.querySelectorAll(`#${CSS.escape(named.id)}`)].find(each => each !== named);
      if (there) {
        named.replaceWith(there);
      }
    });
  }
}

function become(here: Element, next: Element, view: Element): void {
  for (const { name } of [...here.attributes]) {
    if (!OURS.has(name) && !next.hasAttribute(name)) {
      here.removeAttribute(name);
    }
  }
  for (const { name, value } of next.attributes) {
    if (here.getAttribute(name) !== value && !OURS.has(name)) {
      if (name === 'value' && here === (here.getRootNode() as Document).activeElement) {
        // Given what it holds, a field no longer follows its attribute: who is in it types over what is selected there.
        (here as HTMLInputElement).value = (here as HTMLInputElement).value;
      }
      here.setAttribute(name, value);
    }
  }
  if (here instanceof HTMLInputElement && here.type === 'radio') {
    // A click has checked it, or another one, though its attribute is as before.
    here.checked = here.defaultChecked;
  }
  // What is in a view of its own, in a figure or in a notice, is not this view's.
  if (!['data-live', 'data-figure', 'data-notice'].some(each => next.hasAttribute(each))) {
    morph(here, next, view);
  }
}
