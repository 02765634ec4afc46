package nodeagent

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// The limit is that of a process of its own, so that this one keeps what it has.
func TestRaiseLimits(t *testing.T) {
	if os.Getenv("NODEAGENT_LIMIT") != "" {
		c := &kubeletconfig.Config{}
		c.MaxOpenFiles = 256
		if err := RaiseLimits(c); err != nil {
			t.Fatal(err)
		}
		var is unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &is); err != nil || is.Cur != 256 || is.Max != 256 {
			t.Errorf("%+v, %v", is, err)
		}
		c.MaxOpenFiles = 1 << 40 // more than any kernel gives
		if err := RaiseLimits(c); err == nil || !strings.Contains(err.Error(), "maxOpenFiles: 1099511627776") {
			t.Errorf("error %v", err)
		}
		return
	}
	if err := RaiseLimits(&kubeletconfig.Config{}); err != nil {
		t.Error(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRaiseLimits$")
	cmd.Env = append(os.Environ(), "NODEAGENT_LIMIT=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Blocking is profiled where profiles are served, and asked for.
func TestContentionProfiling(t *testing.T) {
	const open = "authorization: {mode: AlwaysAllow}\nauthentication: {anonymous: {enabled: true}}\n"
	for conf, want := range map[string]bool{
		open: false, open + "enableContentionProfiling: true\n": true,
		open + "enableContentionProfiling: true\nenableProfilingHandler: false\n": false,
	} {
		n, err := New(t.Context(), options(t, conf))
		if err != nil {
			t.Fatal(err)
		}
		api, err := n.nodeAPI()
		_ = n.Close()
		if err != nil || api.contention != want {
			t.Errorf("%q: %+v, %v", conf, api, err)
		}
	}
}
