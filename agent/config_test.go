package agent

import (
	"strings"
	"testing"
)

func TestContainerLogsDir(t *testing.T) {
	for _, tc := range []struct {
		logs, links string
		want, wrong string
	}{
		{"", "", "/var/log/containers", ""},
		{"/var/log/pods/", "", "/var/log/containers", ""},
		{"/data/log/pods", "", "/data/log/containers", ""},
		{"/data/log/pods", "/var/log/containers", "/var/log/containers", ""},
		{"", "-", "", ""},
		{"", "links", "links", `ContainerLogsDir is "links"`},
		{"/data", "/data", "/data", "other than PodLogsDir"},
		{"/data/containers", "", "", ""},
	} {
		c := Config{PodLogsDir: tc.logs, ContainerLogsDir: tc.links}.withDefaults()
		if c.ContainerLogsDir != tc.want {
			t.Errorf("%q, %q: links in %q, want %q", tc.logs, tc.links, c.ContainerLogsDir, tc.want)
		}
		err := c.validate().Error()
		if got := strings.Contains(err, "ContainerLogsDir"); got != (tc.wrong != "") || !strings.Contains(err, tc.wrong) {
			t.Errorf("%q, %q: %s; want %q", tc.logs, tc.links, err, tc.wrong)
		}
	}
}
