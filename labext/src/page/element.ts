/** A new element with its classes and its text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  kind: K,
  looks = '',
  text = ''
): HTMLElementTagNameMap[K] {
  return Object.assign(document.createElement(kind), { className: looks, textContent: text });
}
