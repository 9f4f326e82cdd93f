// A page that is opened from disk may start no Worker, so that the search would stay mute: there its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.write("<body></body>");
      inner.document.close();
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => {
        const script = inner.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        inner.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      const inner = this.frame.contentWindow;
      this.ready.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
