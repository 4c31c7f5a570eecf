import href from './workbench.raw.css';

document.head.append(Object.assign(document.createElement('link'), { rel: 'stylesheet', href }));
