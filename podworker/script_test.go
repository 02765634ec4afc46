package podworker

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the answers in testdata by what comes out")

// command is one line of a script: a verb, whom it is about, and options, as in
//
//	kill web grace=5 evict
type command struct {
	verb, who string
	rest      []string          // who, and words after it that are not options
	options   map[string]string // of key=value, and of bare words that are options
}

func parseCommand(line string) command {
	fields := splitQuoted(line)
	c := command{verb: fields[0], options: map[string]string{}}
	for _, f := range fields[1:] {
		key, value, isOption := strings.Cut(f, "=")
		if isOption || c.who != "" {
			c.options[key] = value
		}
		if !isOption {
			c.rest = append(c.rest, f)
		}
		if c.who == "" {
			c.who = f
		}
	}
	return c
}

// splitQuoted splits at spaces outside of quotes, which it drops.
func splitQuoted(line string) []string {
	quoted := false
	fields := strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
	for i, f := range fields {
		fields[i] = strings.ReplaceAll(f, `"`, "")
	}
	return fields
}

func (c command) has(option string) bool { _, ok := c.options[option]; return ok }

func (c command) number(t *testing.T, option string) *int64 {
	if !c.has(option) {
		return nil
	}
	n, err := strconv.ParseInt(c.options[option], 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", option, err)
	}
	return &n
}

func (c command) duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", c.verb, err)
	}
	return d
}

// update makes the update of a create, config, sync or kill. Options: name,
// static, gen, spec (seconds), deletion (seconds), deleted, phase, runtime,
// start (age), and of a kill's, evict, grace and done.
func (c command) update(t *testing.T, now time.Time, done func(name string) chan<- struct{}) Update {
	u := Update{Type: map[string]UpdateType{"sync": SyncUpdate, "config": ConfigUpdate, "create": CreateUpdate, "kill": KillUpdate}[c.verb]}
	name := c.who
	if n := c.options["name"]; n != "" {
		name = n
	}
	if c.has("runtime") {
		u.RuntimePod = &RuntimePod{UID: types.UID(c.who), Name: name, Namespace: "ns"}
	} else {
		u.Pod = c.pod(t, name, now)
	}
	if c.has("start") {
		u.Start = now.Add(-c.duration(t, c.options["start"]))
	}
	if c.has("grace") || c.has("evict") || c.has("done") {
		u.Kill = &KillOptions{Why: podlife.Cause{Grace: c.number(t, "grace")}}
		if c.has("evict") {
			u.Kill.Why.Kind = podlife.Evicted
		}
		if c.has("done") {
			u.Kill.Done = done(c.options["done"])
		}
	}
	return u
}

func (c command) pod(t *testing.T, name string, now time.Time) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(c.who), Name: name, Namespace: "ns", Generation: 1}}
	if g := c.number(t, "gen"); g != nil {
		p.Generation = *g
	}
	if p.Spec.TerminationGracePeriodSeconds = c.number(t, "spec"); !c.has("spec") {
		p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	}
	p.Status.Phase = v1.PodPhase(c.options["phase"])
	if c.has("deleted") {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, c.number(t, "deletion")
	}
	if c.has("static") {
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	}
	return p
}

// runScripts runs every script of a directory. A script is made of blocks: the
// commands, a line of dashes, and what came of them up to the next empty line.
// play is called for each script and returns what runs one block.
func runScripts(t *testing.T, dir string, play func(t *testing.T, script func(block func(commands []command) string))) {
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			play(t, func(block func([]command) string) {
				for i, b := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
					if i > 0 {
						out.WriteString("\n")
					}
					playBlock(t, &out, b, block)
				}
			})
			if *rewrite {
				if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if out.String() != string(text) {
				t.Errorf("%s: got\n%s\nrewrite it with -rewrite if this is right", file, out.String())
			}
		})
	}
}

func playBlock(t *testing.T, out *bytes.Buffer, text string, block func([]command) string) {
	head, want, isBlock := strings.Cut(text+"\n", "----\n")
	out.WriteString(head)
	var commands []command
	for line := range strings.Lines(head) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, parseCommand(line))
		}
	}
	if len(commands) == 0 && !isBlock {
		return // a comment
	}
	got := block(commands)
	out.WriteString("----\n" + got)
	if got != want && !*rewrite {
		t.Errorf("after\n%sgot\n%swant\n%s", head, got, want)
	}
}
