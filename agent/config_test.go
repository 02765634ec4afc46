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
		{"", "links", "links", `Paths.ContainerLogs is "links"`},
		{"/data", "/data", "/data", "other than PodLogs"},
		{"/data/containers", "", "", ""},
	} {
		c := Config{Paths: Paths{PodLogs: tc.logs, ContainerLogs: tc.links}}.withDefaults()
		if c.Paths.ContainerLogs != tc.want {
			t.Errorf("%q, %q: links in %q, want %q", tc.logs, tc.links, c.Paths.ContainerLogs, tc.want)
		}
		err := c.validate().Error()
		if got := strings.Contains(err, "Paths.ContainerLogs"); got != (tc.wrong != "") || !strings.Contains(err, tc.wrong) {
			t.Errorf("%q, %q: %s; want %q", tc.logs, tc.links, err, tc.wrong)
		}
	}
}
