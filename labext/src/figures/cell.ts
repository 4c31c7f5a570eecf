interface ICell {
  /** Its tag is the text. */
  button: { tags: string[]; label: string };
  label: string;
}

/** Put a text into a cell: Lab makes one; where nobody takes the event, it goes on the clipboard. */
export default async function cell({ button, label }: ICell): Promise<void> {
  const [source] = button.tags;
  const event = new CustomEvent('workbench-cell', { detail: { type: 'markdown', source }, cancelable: true });
  if (!window.dispatchEvent(event)) {
    return;
  }
  // Only on this machine or over https has a page a clipboard.
  const clipboard = navigator.clipboard as Clipboard | undefined;
  await clipboard?.writeText(source);
  button.label = clipboard ? 'Copied' : 'No clipboard without https: select the table';
  setTimeout(() => (button.label = label), 1500);
}
