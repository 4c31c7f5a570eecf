/** What pages do by the browser's own means. */

/** A new element with its classes and its text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  kind: K,
  looks = '',
  text = ''
): HTMLElementTagNameMap[K] {
  return Object.assign(document.createElement(kind), { className: looks, textContent: text });
}

/** Report when an element becomes visible, and when it no longer is; return what ends that, and reports that it isn't. */
export function whenSeen(node: Element, report: (isSeen: boolean) => void, margins?: IntersectionObserverInit) {
  let [isThere, isSeen] = [false, false];
  const look = () => {
    if ((isThere && !document.hidden) !== isSeen) {
      report((isSeen = !isSeen));
    }
  };
  const observer = new IntersectionObserver(entries => {
    isThere = entries.at(-1)!.isIntersecting;
    look();
  }, margins);
  observer.observe(node);
  document.addEventListener('visibilitychange', look);
  return (): void => {
    observer.disconnect();
    document.removeEventListener('visibilitychange', look);
    isThere = false;
    look();
  };
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
