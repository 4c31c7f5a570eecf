/** What pages do by the browser's own means. */

/** A new element with its classes and its text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  kind: K,
  looks = '',
  text = ''
): HTMLElementTagNameMap[K] {
  return Object.assign(document.createElement(kind), { className: looks, textContent: text });
}

/** Have the browser keep a file. */
export function download(file: Blob | string, name: string): void {
  const href = typeof file === 'string' ? file : URL.createObjectURL(file);
  Object.assign(element('a'), { href, download: name }).click();
  URL.revokeObjectURL(href);
}

/** Open an address in a new tab, or save what is there as a file of this name. */
export function openPage(href: string, name?: string): void {
  if (name) {
    download(href, name);
  } else {
    window.open(href, '_blank', 'noopener');
  }
}
