package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/containerdtest"
)

// typed is a command of a console block with what it prints.
type typed struct {
	command string // with its here-document
	prints  string
}

// transcript returns the commands of the console blocks of a page.
func transcript(page string) (all []typed) {
	in, here := false, false
	for line := range strings.Lines(page) {
		switch last := len(all) - 1; {
		case strings.HasPrefix(line, "```"):
			in = strings.TrimSpace(line) == "```console"
		case !in:
		case here:
			all[last].command += line
			here = line != "EOF\n"
		case strings.HasPrefix(line, "# "):
			all = append(all, typed{command: line[2:]})
			here = strings.Contains(line, "<<EOF")
		default:
			all[last].prints += line
		}
	}
	return all
}

// changing matches ages, times of day and the number of tries.
var changing = regexp.MustCompile(`\b(?:\d+[smh](?:\d+[smh])?|\d+:\d\d:\d\d)\b|\btried \d+ times`)

// likeness returns the text without what differs from one time to the next.
func likeness(text string) string {
	return strings.Join(strings.Fields(changing.ReplaceAllString(text, "N")), " ")
}

// TestFirstTenMinutes types the commands of docs/start/ten-minutes.md, and compares what they print. What
// they change takes time, so a command is repeated until it prints what the page has.
func TestFirstTenMinutes(t *testing.T) {
	t.Parallel()
	requireRuntime(t, containerdtest.LocalCRI)
	page, err := os.ReadFile(filepath.Join("..", "docs", "start", "ten-minutes.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := newFieldNode(t, containerdtest.LocalCRI, "")
	if err := n.start(nil, ""); err != nil {
		t.Fatal(err)
	}
	// The page's agent is the only one of its machine.
	bin := filepath.Join(n.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s --root-dir %s \"$@\"\n", program(t, "agent"), n.root())
	if err := os.WriteFile(filepath.Join(bin, "agent"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	here := strings.NewReplacer("/etc/nodewright/manifests", n.manifests(), "docker.io/library/busybox:1.36", busybox)
	commands := transcript(here.Replace(string(page)))
	if len(commands) < 10 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, c := range commands {
		if strings.HasPrefix(c.command, "agent run ") {
			continue
		}
		err := within(c.command, func() error {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", c.command) //nolint:gosec // of the page
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+n.path())
			out, err := cmd.CombinedOutput()
			switch {
			case c.prints == "" && err != nil:
				return giveUp{fmt.Errorf("%w: %s", err, out)}
			case likeness(string(out)) != likeness(c.prints):
				return fmt.Errorf("it prints\n%s\nwant\n%s", out, c.prints)
			default:
				return nil
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
