import type { Link } from './link';

export type Theme = 'light' | 'dark';

/** What a place gives to the views and figures in it: Lab, a cell of a notebook, a page of its own. */
export interface IHost {
  link: Link;
  /** Text of a script of Python's, by its address. */
  script(address: string): Promise<string>;
  /** Open a page of Python's in a new tab of the browser, or save it as a file of this name. */
  open(path: string, name?: string): Promise<void> | void;
  /** Of figures; without it they follow the page. */
  theme?: Theme | null;
  /** Whether Python keeps nothing of a cluster that has ended, so that what is drawn is its record. */
  forgets?: boolean;
  /** Called when a figure can't be drawn, and when the cluster that it shows has ended. */
  onFigure?(state: 'failed' | 'ended'): void;
}

/** What is shown in a place. */
export interface IShown {
  /** Take in a message of Python's. */
  receive(message: object): void;
  /** Say that Python is silent, or with an empty text that it no longer is; `isLast`, that it will be for ever. */
  say(text: string, isLast?: boolean): void;
  dispose(): void;
}
