import href from '../../workbench/views/page.raw.css';

document.head.append(Object.assign(document.createElement('link'), { rel: 'stylesheet', href }));
