import * as React from 'react';

/** React.createElement under a name that the bundle can shorten: the JSX of this folder compiles to it. */
export const h = React.createElement;
export const Fragment = React.Fragment;
