package podspec

import (
	"fmt"
	"strings"
	"testing"
)

// A resolver configuration with more search domains than pods may have, by number or by length,
// is reported.
func TestCheckResolvConf(t *testing.T) {
	search := func(n int, name string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("%s%d", name, i))
		}
		return "search " + strings.Join(all, " ") + "\n"
	}
	for _, tc := range []struct {
		content, domain string
		want            []string
	}{
		{"", "", nil},
		{search(32, "d"), "", nil},
		{search(33, "d"), "", []string{"more than 32 domains"}},
		{search(29, "d"), "cluster.local", nil},
		{search(30, "d"), "cluster.local", []string{"more than 29 domains"}},
		{search(20, strings.Repeat("x", 150)), "", []string{"more than allowed 2048 chars"}},
		{search(1, strings.Repeat("x", 252)), "", nil},
		{search(1, strings.Repeat("x", 253)), "", []string{"search path which length is more than allowed 253 chars"}},
		{"nameserver\n", "", []string{"names no server"}},
	} {
		got := CheckResolvConf("/etc/resolv.conf", tc.content, tc.domain)
		if len(got) != len(tc.want) {
			t.Errorf("%.30q, %s: %q, want %q", tc.content, tc.domain, got, tc.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], tc.want[i]) {
				t.Errorf("%.30q, %s: %q, want %q", tc.content, tc.domain, got, tc.want)
			}
		}
	}
}
