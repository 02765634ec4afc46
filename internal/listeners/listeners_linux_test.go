package listeners_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/listeners"
)

func TestTCPNamesTheListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := int32(l.Addr().(*net.TCPAddr).Port)
	if _, who := listeners.TCP(port); !strings.Contains(who, "process "+strconv.Itoa(os.Getpid())+" (") {
		t.Errorf("port %d is held by %q, want this process, %d", port, who, os.Getpid())
	}
	if pod, who := listeners.TCP(0); pod != "" || who != "" {
		t.Errorf("port 0 is held by %q %q, want nobody", pod, who)
	}
}
