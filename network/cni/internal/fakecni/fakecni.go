// Package fakecni is a CNI plugin for tests: it records its calls, and answers,
// fails, hangs, floods and lies as instructed.
package fakecni

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nodewright/nodewright/internal/safefile"
)

// limit is the limit of data read, in bytes or entries.
const limit = 1 << 20

// Act is the behaviour of a fake plugin at a verb.
type Act struct {
	Code    int    `json:"code,omitempty"`
	Msg     string `json:"msg,omitempty"`
	Details string `json:"details,omitempty"`
	Stdout  string `json:"stdout,omitempty"` // instead of a result
	Stderr  string `json:"stderr,omitempty"`
	Exit    int    `json:"exit,omitempty"` // after Stdout
	Hang    bool   `json:"hang,omitempty"`
	Flood   bool   `json:"flood,omitempty"`
	Child   bool   `json:"child,omitempty"` // leaves a child that keeps stdout open
	Deaf    bool   `json:"deaf,omitempty"`  // does not read stdin
	// Result is the result of ADD, with the namespace for NETNS.
	Result string `json:"result,omitempty"`
	// Unique returns the usual result with addresses unique to the attachment.
	Unique bool `json:"unique,omitempty"`
	// Versions are the answer to VERSION. If it is empty, the answer has all versions.
	Versions []string `json:"versions,omitempty"`
}

// Heard is a recorded call of a fake plugin.
type Heard struct {
	Kind  string            `json:"kind"`
	Verb  string            `json:"verb"`
	Env   map[string]string `json:"env"`
	Stdin string            `json:"stdin"`
	FDs   []string          `json:"fds,omitempty"`
	Pid   int               `json:"pid"`
	Group int               `json:"group"`
	Child int               `json:"child,omitempty"`
}

// Main runs the plugin and returns its exit code. Its instructions are files in a directory beside
// the directory of its executable.
func Main() int {
	path := os.Args[0]
	state := filepath.Join(filepath.Dir(filepath.Dir(path)), "state")
	env := map[string]string{}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	h := Heard{Kind: filepath.Base(path), Verb: env["CNI_COMMAND"], Env: env, Pid: os.Getpid(), Group: syscall.Getpgrp()}
	fds, _ := safefile.Names("/proc/self/fd", limit)
	slices.Sort(fds)
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd); err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "/sys/fs/cgroup/") {
			h.FDs = append(h.FDs, fd)
		}
	}
	a := Acts(state, h.Kind)[h.Verb]
	if !a.Deaf {
		b, _ := io.ReadAll(io.LimitReader(os.Stdin, limit))
		h.Stdin = string(b)
	}
	if a.Child {
		c := exec.Command("/bin/sleep", "600")
		c.Stdout = os.Stdout
		if err := c.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 9
		}
		h.Child = c.Process.Pid
	}
	Note(state, h)
	fmt.Fprint(os.Stderr, a.Stderr)
	switch {
	case a.Hang:
		time.Sleep(time.Hour)
	case a.Flood:
		for b := bytes.Repeat([]byte("x"), 1<<16); ; {
			if _, err := os.Stdout.Write(b); err != nil {
				return 8
			}
		}
	}
	out, code := Answer(a, h)
	fmt.Print(out)
	return code
}

// Answer returns the output of a fake plugin, and its exit code.
func Answer(a Act, h Heard) (string, int) {
	switch {
	case a.Stdout != "" || a.Exit != 0:
		return a.Stdout, a.Exit
	case a.Code != 0 || a.Msg != "":
		b, _ := json.Marshal(map[string]any{"cniVersion": "1.1.0", "code": a.Code, "msg": a.Msg, "details": a.Details})
		return string(b), 1
	}
	switch h.Verb {
	case "VERSION":
		versions := a.Versions
		if versions == nil {
			versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
		}
		b, _ := json.Marshal(map[string]any{"cniVersion": "1.1.0", "supportedVersions": versions})
		return string(b), 0
	case "ADD":
		var conf struct {
			CNIVersion string
			PrevResult json.RawMessage
		}
		if err := json.Unmarshal([]byte(h.Stdin), &conf); err != nil {
			return err.Error(), 7
		}
		if a.Result == "" && conf.PrevResult != nil {
			return string(conf.PrevResult), 0
		}
		result := a.Result
		if result == "" {
			result = Result(conf.CNIVersion)
		}
		if a.Unique {
			sum := sha256.Sum256([]byte(h.Env["CNI_CONTAINERID"]))
			result = strings.ReplaceAll(result, "10.1.2.3/", fmt.Sprintf("10.%d.%d.%d/", sum[0], sum[1], sum[2]))
			result = strings.ReplaceAll(result, "fd00::3/", fmt.Sprintf("fd00::%x:%x/", sum[:2], sum[2:4]))
		}
		return strings.ReplaceAll(result, "NETNS", h.Env["CNI_NETNS"]), 0
	}
	return "", 0
}

// Result returns a result in the form of a version.
func Result(version string) string {
	switch version {
	case "", "0.1.0", "0.2.0":
		return `{"cniVersion":"` + version + `","ip4":{"ip":"10.1.2.3/24","gateway":"10.1.2.1"},"ip6":{"ip":"fd00::3/64"}}`
	case "0.3.0", "0.3.1", "0.4.0":
		return `{"cniVersion":"` + version + `","interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"NETNS"}],` +
			`"ips":[{"version":"4","address":"10.1.2.3/24","gateway":"10.1.2.1","interface":1},{"version":"6","address":"fd00::3/64","interface":1}]}`
	}
	return `{"cniVersion":"` + version + `","interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"NETNS","mac":"0a:58:0a:01:02:03"}],` +
		`"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":1},{"address":"fd00::3/64","interface":1}],"routes":[{"dst":"0.0.0.0/0"}]}`
}

// Acts returns the instructions for a plugin of a kind, by verb.
func Acts(state, kind string) map[string]Act {
	m := map[string]Act{}
	if b, err := safefile.ReadFile(filepath.Join(state, kind+".acts"), limit); err == nil {
		_ = json.Unmarshal(b, &m)
	}
	return m
}

// Note records a call.
func Note(state string, h Heard) {
	b, _ := json.Marshal(h)
	f, err := os.OpenFile(filepath.Join(state, "heard"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:forbidigo // the test's
	if err != nil {
		return
	}
	_, _ = f.Write(append(b, '\n'))
	_ = f.Close()
}
