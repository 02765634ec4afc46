package rootless

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestFirstRange(t *testing.T) {
	const file = "# comment\nother:100000:65536\nuser:165536:65536\nuser:300000:1000000\n1002:400000:1000\nshort:1\nbad:1:x\n:1:5\n"
	for _, tt := range []struct {
		name string
		uid  int
		want uint64
	}{
		{"user", 1000, 65536}, // the first of two
		{"gone", 1002, 1000},  // by its ID
		{"", 1002, 1000},      // a user without a name
		{"nobody", 65534, 0},
		{"short", 1, 0},
		{"bad", 1, 0},
		{"", 0, 0},
	} {
		if got := firstRange(file, tt.name, tt.uid); got != tt.want {
			t.Errorf("firstRange(%q, %d) = %d, want %d", tt.name, tt.uid, got, tt.want)
		}
	}
}

func TestBaseOf(t *testing.T) {
	for own, want := range map[string]string{
		"/user.slice/user-1000.slice/user@1000.service/app.slice/nodewright-agent.service/agent": "/user.slice/user-1000.slice/user@1000.service/app.slice/nodewright-agent.service",
		"/user.slice/run-u1.scope": "/user.slice/run-u1.scope", // before it moves itself
		"/agent":                   "/",
		"/":                        "/",
	} {
		if got := baseOf(own); got != want {
			t.Errorf("baseOf(%s) = %s, want %s", own, got, want)
		}
	}
}

func TestMissingControllers(t *testing.T) {
	for text, want := range map[string][]string{
		"cpuset cpu io memory hugetlb pids rdma\n": nil,
		"memory pids\n": {"cpu", "cpuset", "io"},
		"":              {"cpu", "cpuset", "io", "memory", "pids"},
	} {
		var got []string
		for _, line := range missingControllers(text) {
			got = append(got, strings.Fields(line)[2])
		}
		if !slices.Equal(got, want) {
			t.Errorf("missingControllers(%q) names %q, want %q", text, got, want)
		}
	}
}

// Everything that is missing is in one error, with a remedy for each.
func TestLacksNamesEverything(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	const nobody = 4294000000 // has no range
	err := lacks(nobody, errors.New("delegated cgroup: none"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"program unshare; install util-linux", "program newuidmap; install uidmap", "program pasta; install passt",
		"in /etc/subuid", "in /etc/subgid", "usermod --add-subuids", "delegated cgroup: none",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestCheckPorts(t *testing.T) {
	for _, good := range []string{"", "80", "8080,30000-30100", "1-65535"} {
		if err := checkPorts(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{",", "0", "65536", "2-1", "1-", "all", "auto", "~1", "1 2", "127.0.0.1/80", "80:81"} {
		if err := checkPorts(bad); err == nil || !strings.Contains(err.Error(), "8080,30000-30100") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
