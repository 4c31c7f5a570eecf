/** Draw sources again whose opacity depends on what is marked. */
export default function redraw({ drawn }: { drawn: { change: { emit(): void } }[] }): void {
  drawn.forEach(each => each.change.emit());
}
