// The web socket to the server. Messages have a head and arrays in one piece; stepwell/explorer/_session.py describes them.
const KINDS = {f4: Float32Array, f8: Float64Array};

function unpack(content) {
    const length = new DataView(content).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 4, length)));
    for (const [name, [kind, shape, place]] of Object.entries(head.arrays ?? {})) {
        const size = shape.reduce((product, axis) => product * axis, 1);
        head.view[name] = Object.assign(new KINDS[kind](content, 4 + length + place, size), {shape});
    }
    return head;
}

// Returns a function that sends a request, once the connection is there. `lost` is called if it ends.
export function connect(received, lost) {
    return new Promise(ready => {
        const socket = new WebSocket(`ws://${location.host}/ws`);
        socket.binaryType = "arraybuffer";
        socket.addEventListener("message", event => received(unpack(event.data)));
        socket.addEventListener("open", () => ready(request => socket.send(JSON.stringify(request))));
        socket.addEventListener("close", lost);
        addEventListener("pagehide", () => socket.removeEventListener("close", lost));
        addEventListener("pageshow", event => event.persisted && location.reload());  // "back" leads here without a socket
    });
}
