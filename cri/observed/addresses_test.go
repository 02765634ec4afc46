package observed

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, tc := range []struct{ given, node, want, dropped string }{
		{"10.0.0.1 fd00::1", "192.0.2.1", "10.0.0.1 fd00::1", ""},
		{"fd00::1 10.0.0.1", "192.0.2.1", "10.0.0.1 fd00::1", ""},
		{"10.0.0.1 fd00::1", "2001:db8::1", "fd00::1 10.0.0.1", ""},
		{"fd00::1 10.0.0.1", "", "10.0.0.1 fd00::1", ""},
		{"fd00::1 10.0.0.1", "node", "10.0.0.1 fd00::1", ""},
		{"fd00::1", "192.0.2.1", "fd00::1", ""},
		{"fd00::1 fd00::2 10.0.0.2 10.0.0.1", "192.0.2.1", "10.0.0.2 fd00::1", ""},
		{"010.0.0.1 fd00::1", "192.0.2.1", "fd00::1", "010.0.0.1"},
		{"x 10.0.0.1 10.0.0.1/8 fe80::1%eth0 0.0.0.0 ::", "192.0.2.1", "10.0.0.1", "x 10.0.0.1/8 fe80::1%eth0 0.0.0.0 ::"},
		{"::ffff:10.0.0.1 FD00::0:1", "192.0.2.1", "10.0.0.1 fd00::1", ""},
		{"", "192.0.2.1", "", ""},
	} {
		ips, dropped := Addresses(strings.Fields(tc.given), tc.node)
		if got, gone := strings.Join(ips, " "), strings.Join(dropped, " "); got != tc.want || gone != tc.dropped {
			t.Errorf("%s on node %q: %s, dropped %s; want %s, dropped %s", tc.given, tc.node, got, gone, tc.want, tc.dropped)
		}
		if again, more := Addresses(ips, tc.node); strings.Join(again, " ") != tc.want || len(more) > 0 {
			t.Errorf("%s: the second time %v, dropped %v", tc.given, again, more)
		}
	}
}
