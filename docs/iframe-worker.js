// Workers of pages opened from the file system, where browsers start none: the script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src: new URL(url, document.baseURI).href, onload: loaded, onerror: failed });
        inside.document.head.append(script);
      });
    }
    postMessage(data) {
      const { contentWindow } = this.frame;
      this.ready.then(() => contentWindow.dispatchEvent(new contentWindow.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
