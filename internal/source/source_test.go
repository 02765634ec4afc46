package source_test

import (
	"testing"

	"github.com/nodewright/nodewright/internal/source"
)

func TestOf(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1", "[::ffff:10.0.0.1]:2": "10.0.0.1", "[2001:db8::1]:1": "2001:db8::/64", "[2001:db8::2]:1": "2001:db8::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "pipe": "pipe", "": "",
	} {
		if got := source.Of(remote); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}
