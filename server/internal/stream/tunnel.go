package stream

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

const (
	portForwardV1  = "portforward.k8s.io"
	tunnelProtocol = "SPDY/3.1+" + portForwardV1
	spdy31         = "SPDY/3.1"
)

// upgrader accepts any origin. Clients authenticate by a certificate or a token, which a browser
// does not send by itself.
func upgrader(protocol string) *websocket.Upgrader {
	return &websocket.Upgrader{
		Subprotocols: []string{protocol}, HandshakeTimeout: dialTimeout,
		ReadBufferSize: 32 << 10, WriteBufferSize: 32 << 10,
		CheckOrigin: func(*http.Request) bool { return true },
	}
}

// askSPDY upgrades the connection to the runtime to SPDY.
func askSPDY(ctx context.Context, w http.ResponseWriter, target, protocol string) (*backend, error) {
	h := http.Header{}
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", spdy31)
	h.Set(protocolHeader, protocol)
	return upgrade(ctx, w, http.MethodPost, target, h)
}

// tunnel extracts a SPDY connection from WebSocket messages.
func tunnel(ctx context.Context, w http.ResponseWriter, r *http.Request, q Request) error {
	b, err := askSPDY(ctx, w, q.Target, portForwardV1)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	ws, err := upgrader(tunnelProtocol).Upgrade(w, r, nil)
	if err != nil {
		return err
	}
	defer func() { _ = ws.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = ws.Close()
		_ = b.Close()
	})
	defer stop()
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			kind, msg, err := ws.NextReader()
			if err != nil || kind != websocket.BinaryMessage {
				return
			}
			if _, err := io.Copy(b.Conn, msg); err != nil {
				return
			}
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		buf := make([]byte, 32<<10)
		for {
			n, err := b.Read(buf)
			if n > 0 && ws.WriteMessage(websocket.BinaryMessage, buf[:n]) != nil {
				return
			}
			if err != nil {
				sendClose(ws, websocket.CloseNormalClosure)
				return
			}
		}
	}()
	<-done
	_ = ws.Close()
	_ = b.Close()
	<-done
	return nil
}

// sendClose sends the reason why the connection ends.
func sendClose(ws *websocket.Conn, code int) {
	_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(time.Second))
}
