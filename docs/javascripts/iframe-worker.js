// Browsers refuse to start a Worker from a page that was opened from the file system. There the search of the site runs in a
// hidden iframe instead, which has the same interface. Its script looks for the name IFrameWorker in the parent window to find
// the folder of its other scripts.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.waiting = [];
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow) return;
        const copy = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(copy);
        if (this.onmessage) this.onmessage(copy);
      });
      const start = () => {
        document.body.appendChild(frame);
        frame.contentDocument.open();
        frame.contentDocument.write(
          "<!DOCTYPE html><base href=\"" + document.baseURI + "\"><script>" +
          "postMessage = (data) => parent.postMessage(data, '*');" +
          "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {" +
          "  const script = document.createElement('script');" +
          "  script.src = url; script.onload = done; script.onerror = failed;" +
          "  document.head.appendChild(script); })), Promise.resolve());" +
          "</scr" + "ipt>"
        );
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = () => {
          this.frame = frame;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        };
        frame.contentDocument.close();
        frame.contentDocument.head.appendChild(script);
      };
      if (document.body) start();
      else document.addEventListener("DOMContentLoaded", start);
    }

    postMessage(data) {
      if (!this.frame) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      if (this.frame) this.frame.remove();
    }
  };
}
