/** Attributes that hold words which a person reads or hears. */
const SAID = ['title', 'aria-label', 'placeholder', 'data-confirm'];
/** What is said to a computer, and what somebody named: it is the same in all languages. */
const NAMED = 'pre, code, textarea, [translate=no]';

/** Words in the language of the place, where it has them. A text with a per cent sign would be taken for a pattern. */
export function translated(content: DocumentFragment, translate: (words: string) => string): void {
  const said = (text: string) => {
    const words = text.trim();
    return words && !words.includes('%') ? text.replace(words, () => translate(words)) : text;
  };
  const walker = document.createTreeWalker(content, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node instanceof Element) {
      const names = node.closest('[translate=no]') ? [] : SAID;
      names.forEach(name => node.hasAttribute(name) && node.setAttribute(name, said(node.getAttribute(name)!)));
    } else if (!node.parentElement?.closest(NAMED)) {
      node.nodeValue = said(node.nodeValue ?? '');
    }
  }
}
