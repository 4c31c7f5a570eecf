/** What a page still knows when it is loaded again: kept by the browser for its tab, until that is closed. */
import type { Choices } from './page';

export interface IMemory {
  read(): Choices;
  keep(choices: Choices): void;
}

/** The memory under this name. A browser may forbid it, then nothing is kept. */
export function memory(name: string): IMemory {
  return {
    read: () => {
      try {
        return JSON.parse(sessionStorage.getItem(name) ?? '{}') as Choices;
      } catch {
        return {};
      }
    },
    keep: choices => {
      try {
        sessionStorage.setItem(name, JSON.stringify(choices));
      } catch {
        // The page is as good without.
      }
    }
  };
}
