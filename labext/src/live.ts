/**
 * `<wb-live name="runs">`: HTML that the server made, and keeps up to date for as long as it is shown: not while
 * its section, its fold, the sidebar or the page is closed or hidden. What a click
 * or a choice in it does is said by its attributes, so that a new view needs no code here:
 *
 * data-request="POST runs/x/cancel"  a request, with data-body or the fields of its form as body
 * data-command, data-args            a command of Lab
 * data-page                          a page of the server, in a new tab of the browser
 * data-show                          name of the view that takes the place of this one
 * data-unfold                        id of the <details> that it opens and closes
 * data-copy                          copies the text that follows it
 * data-choice                        a box that stands for a choice of the profile
 */
import { Clipboard } from '@jupyterlab/apputils';

import type { Model } from './model';
import type { StreamMessage } from './tokens';

type Execute = (command: string, args: object) => void;

/** Elements that this page has shown. */
let shown = 0;

export function defineLive(model: Model, execute: Execute): void {
  const { api, stream } = model;

  class Live extends HTMLElement {
    static observedAttributes = ['name'];

    connectedCallback(): void {
      // Scrolled out of sight is shown, or what is searched for on the page would be missing.
      this._seen = new IntersectionObserver(
        entries => {
          this._isShown = entries[entries.length - 1].isIntersecting;
          this._look();
        },
        { root: this.closest('.wb-Sidebar'), rootMargin: '99999px' }
      );
      this._seen.observe(this);
      document.addEventListener('visibilitychange', this._look);
      stream.message.connect(this._receive, this);
      this.onclick = event => this._clicked(event);
      this.onchange = event => this._chosen(event.target as HTMLInputElement);
    }

    disconnectedCallback(): void {
      this._seen?.disconnect();
      document.removeEventListener('visibilitychange', this._look);
      stream.message.disconnect(this._receive, this);
      this._isShown = false;
      this._look();
    }

    attributeChangedCallback(): void {
      stream.unwatch(this._id);
      this._watched = false;
      this._look();
    }

    private readonly _id = `live-${++shown}`;
    private _isShown = false;
    private _watched = false;
    private _seen: IntersectionObserver | null = null;

    /** Have it kept up to date while somebody can see it. */
    private readonly _look = (): void => {
      const watched = this._isShown && !document.hidden;
      if (watched !== this._watched) {
        this._watched = watched;
        if (watched) {
          stream.watch(this._id, { fragment: this.getAttribute('name')! });
        } else {
          stream.unwatch(this._id);
        }
      }
    };

    private _receive(_: unknown, message: StreamMessage): void {
      if (message.type === 'state' || message.watch !== this._id) {
        return;
      }
      const next = document.createElement('template');
      if (message.type === 'patches') {
        next.innerHTML = message.html ?? '';
      } else {
        next.content.append(message.message);
      }
      morph(this, next.content);
      this._mark();
    }

    private _clicked(event: Event): void {
      const button = (event.target as Element).closest<HTMLElement>('[data-workbench],[data-copy]');
      if (!button || button.closest('wb-live') !== this) {
        return;
      }
      const { request, body, command, args, page, show, unfold, copy } = button.dataset;
      if (request) {
        const form = button.closest('form');
        const fields = (form ? Object.fromEntries(new FormData(form)) : JSON.parse(body ?? '{}')) as object;
        void model.send(request, fields);
      } else if (command) {
        execute(command, JSON.parse(args ?? '{}') as object);
      } else if (page) {
        window.open(api.pageUrl(page), '_blank', 'noopener');
      } else if (show) {
        this.setAttribute('name', show);
      } else if (unfold) {
        this.querySelector(`#${CSS.escape(unfold)}`)?.toggleAttribute('open');
      } else if (copy !== undefined) {
        Clipboard.copyToSystem(button.nextElementSibling?.textContent ?? '');
      }
    }

    private _chosen({ name, dataset }: HTMLInputElement): void {
      if (dataset['choice'] !== undefined) {
        const boxes = [...this.querySelectorAll<HTMLInputElement>(`[name=${name}]:checked`)];
        model.choose(name, boxes.map(each => each.value).join());
        this._mark();
      }
    }

    /** Check the boxes as chosen; where nothing is chosen as planned, or else as proposed. */
    private _mark(): void {
      this.querySelectorAll<HTMLInputElement>('[data-choice]').forEach(box => {
        const chosen = (model.choices[box.name] ?? model.plan?.spec.devices.join()) as string | undefined;
        box.checked = chosen ? chosen.split(',').includes(box.value) : box.defaultChecked;
      });
    }
  }

  customElements.define('wb-live', Live);
}

/** Make a node what another is, and leave alone what is the same: focus, what is unfolded, what is typed. */
function morph(here: Element, next: Element | DocumentFragment): void {
  const children = [...next.childNodes];
  children.forEach((child, i) => {
    const id = (child as Element).id;
    const place = here.childNodes[i];
    const there = (id && here.children.namedItem(id)) || place;
    if (there?.nodeName !== child.nodeName || ((there as Element).id || '') !== (id || '')) {
      here.insertBefore(child, place ?? null);
      return;
    }
    if (there !== place) {
      here.insertBefore(there, place);
    }
    if (child instanceof Element) {
      const old = there as Element;
      // The server knows that this page has it.
      if (child.hasAttribute('data-same')) {
        return;
      }
      for (const { name } of [...old.attributes]) {
        if (name !== 'open' && !child.hasAttribute(name)) {
          old.removeAttribute(name);
        }
      }
      for (const { name, value } of child.attributes) {
        if (old.getAttribute(name) !== value && name !== 'open') {
          old.setAttribute(name, value);
        }
      }
      if (child.nodeName !== 'WB-LIVE') {
        morph(old, child);
      }
    } else if (there.nodeValue !== child.nodeValue) {
      there.nodeValue = child.nodeValue;
    }
  });
  while (here.childNodes.length > children.length) {
    here.lastChild!.remove();
  }
}
