/** What a figure of Bokeh's looks like as one picture: its export has the plots, but none of the words between them. */

const HEAD = 28;
const MARGIN = 10;

/** A piece of what stands between the plots, as it is on the page. */
interface IPiece {
  color: string;
  place: DOMRect;
  /** Of words; without it the place is filled. */
  words?: { text: string; font: string };
}

/**
 * A figure as one picture: below a heading its plots, as `plots` draws them, and the words and swatches between them.
 *
 * `root` is the element that the figure is in.
 */
export async function picture(root: HTMLElement, plots: () => Promise<Blob>, heading: string): Promise<Blob> {
  // All of the same moment: a live figure may be laid out anew while the picture is made.
  const place = root.getBoundingClientRect();
  const pieces = [...within(root, '.bk-Div')].flatMap(each => [...piecesOf(each.shadowRoot ?? each)]);
  const { color, fontFamily } = getComputedStyle(root);
  const drawn = await createImageBitmap(await plots());
  const scale = drawn.width / place.width;
  const canvas = document.createElement('canvas');
  canvas.width = drawn.width;
  canvas.height = drawn.height + Math.round(HEAD * scale);
  const paper = canvas.getContext('2d')!;
  paper.fillStyle = background(root);
  paper.fillRect(0, 0, canvas.width, canvas.height);
  paper.drawImage(drawn, 0, HEAD * scale);
  paper.scale(scale, scale);
  paper.textBaseline = 'middle';
  paper.fillStyle = color;
  paper.font = `600 13px ${fontFamily}`;
  paper.fillText(heading, MARGIN, HEAD / 2);
  paper.translate(-place.left, HEAD - place.top);
  for (const { color, place, words } of pieces) {
    paper.fillStyle = color;
    if (words) {
      paper.font = words.font;
      paper.fillText(words.text, place.left, place.top + place.height / 2);
    } else {
      paper.fillRect(place.left, place.top, place.width, place.height);
    }
  }
  return new Promise((resolve, reject) => {
    canvas.toBlob(made => (made ? resolve(made) : reject(new Error('The browser could not make the picture.'))));
  });
}

/** Swatches first, so that words stand on what is coloured. */
function* piecesOf(part: ParentNode): Generator<IPiece> {
  for (const each of part.querySelectorAll<HTMLElement>('*')) {
    const color = getComputedStyle(each).backgroundColor;
    if (isSeen(color)) {
      yield { color, place: each.getBoundingClientRect() };
    }
  }
  const texts = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const parent = node.parentElement;
    if (parent && parent.tagName !== 'STYLE' && node.nodeValue?.trim()) {
      const { color, fontWeight, fontSize, fontFamily } = getComputedStyle(parent);
      const font = `${fontWeight} ${fontSize} ${fontFamily}`;
      yield* lines(node as Text).map(([text, place]) => ({ color, place, words: { text, font } }));
    }
  }
}

/** A text as it is broken into lines, and where each stands. */
function lines(text: Text): [string, DOMRect][] {
  const range = document.createRange();
  const found: [string, DOMRect][] = [];
  const words = text.data.matchAll(/\s*\S+\s*/g);
  for (const { 0: word, index } of words) {
    range.setStart(text, index);
    range.setEnd(text, index + word.length);
    const place = range.getBoundingClientRect();
    const last = found[found.length - 1];
    if (last && Math.abs(last[1].top - place.top) < 1) {
      last[0] += word.replace(/\s+/g, ' ');
    } else if (place.width) {
      found.push([word.replace(/\s+/g, ' ').trimStart(), place]);
    }
  }
  return found;
}

/** Elements that a selector finds, those in the shadows of others, too. */
function* within(root: ParentNode, selector: string): Generator<HTMLElement> {
  for (const each of root.querySelectorAll<HTMLElement>('*')) {
    if (each.matches(selector)) {
      yield each;
    }
    if (each.shadowRoot) {
      yield* within(each.shadowRoot, selector);
    }
  }
}

/** What is behind an element. */
function background(element: HTMLElement | null): string {
  const color = element ? getComputedStyle(element).backgroundColor : '#fff';
  return element && !isSeen(color) ? background(element.parentElement) : color;
}

function isSeen(color: string): boolean {
  return !/^(transparent|rgba\(.*, 0\))$/.test(color);
}
