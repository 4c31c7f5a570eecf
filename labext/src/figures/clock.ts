/** A time, ms since the epoch, on the reader's clock. */
export default function clock({ value }: { value: number }): string {
  const date = new Date(value);
  const two = (part: number) => String(part).padStart(2, '0');
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
  return `${time}.${String(date.getMilliseconds()).padStart(3, '0')}`;
}
