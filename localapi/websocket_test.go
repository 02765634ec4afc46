package localapi_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// A log comes as messages to who asks for a WebSocket, and an error as one of HTTP.
func TestLogByWebSocket(t *testing.T) {
	a := start(t, &store.Memory{}, func(c *localapi.Config) {
		c.Kubelet = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				t.Errorf("the node is asked to upgrade: %v", r.Header)
			}
			if strings.HasSuffix(r.URL.Path, "/other") {
				http.Error(w, "container other is not there", http.StatusBadRequest)
				return
			}
			_, _ = io.WriteString(w, "one\n")
			_, _ = io.WriteString(w, "two\n")
		})
	})
	must[v1.Pod](a, "POST", pods, asJSON, `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"i"},{"name":"other","image":"i"}]}}`)
	dial := func(container, protocol string) (*websocket.Conn, error) {
		cfg, err := websocket.NewConfig(strings.Replace(a.url, "http:", "ws:", 1)+pods+"/web/log?container="+container, a.url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Protocol = []string{protocol}
		return websocket.DialConfig(cfg)
	}
	for protocol, want := range map[string]string{"binary.k8s.io": "one\ntwo\n", "base64.binary.k8s.io": "b25lCg==dHdvCg=="} {
		ws, err := dial("c", protocol)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for {
			var message []byte
			if err := websocket.Message.Receive(ws, &message); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			got = append(got, message...)
		}
		if string(got) != want {
			t.Errorf("%s: %q, want %q", protocol, got, want)
		}
		_ = ws.Close()
	}
	if ws, err := dial("other", "binary.k8s.io"); err == nil {
		_ = ws.Close()
		t.Error("an error is a WebSocket")
	}
	if code, answer := a.do("GET", pods+"/web/log?container=other", "", ""); code != 400 || !strings.Contains(answer, "is not there") {
		t.Errorf("%d %s", code, answer)
	}
}
