package sysctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Sys is the directory of the kernel's parameters, OwnScore the OOM score file of this process.
const (
	Sys      = "/proc/sys"
	OwnScore = "/proc/self/oom_score_adj"
)

// Tunable is a parameter of the kernel that holds a number (sysctl(8)).
type Tunable struct {
	Name string // with slashes, such as vm/overcommit_memory
	Want int64
}

// Tunables returns the kubelet's parameters. With them, memory is overcommitted, the kernel kills
// a process instead of panicking when memory runs out, it reboots 10 s after a panic, and root
// may have as many keys as containers need, of 25 bytes each.
func Tunables() []Tunable {
	return []Tunable{
		{"vm/overcommit_memory", 1},
		{"vm/panic_on_oom", 0},
		{"kernel/panic", 10},
		{"kernel/panic_on_oops", 1},
		{"kernel/keys/root_maxkeys", 1000000},
		{"kernel/keys/root_maxbytes", 25000000},
	}
}

// TunableError is the error for a parameter with a wrong value.
type TunableError struct {
	Tunable
	Got string // the current value; "" if it could not be read
	Err error  // nil if the value is only wrong
}

func (e *TunableError) Error() string {
	name := strings.ReplaceAll(e.Name, "/", ".")
	switch {
	case e.Err != nil && e.Got != "":
		return fmt.Sprintf("%s is %s, want %d: %v", name, e.Got, e.Want, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("%s, want %d: %v", name, e.Want, e.Err)
	}
	return fmt.Sprintf("%s is %s, want %d", name, e.Got, e.Want)
}

func (e *TunableError) Unwrap() error { return e.Err }

// Check compares the parameters below dir, which is [Sys], with the given ones. It returns nil if
// all have the right values. Otherwise the error joins a [*TunableError] for each wrong
// parameter.
func Check(dir string, tunables []Tunable) error {
	var errs []error
	for _, t := range tunables {
		if e := t.differs(dir); e != nil {
			errs = append(errs, e)
		}
	}
	return errors.Join(errs...)
}

// Set sets the parameters below dir, which is [Sys], and returns those that could not be set, as
// Check does.
func Set(dir string, tunables []Tunable) error {
	var errs []error
	for _, t := range tunables {
		e := t.differs(dir)
		if e == nil {
			continue
		}
		if e.Err == nil {
			e.Err = write(filepath.Join(dir, t.Name), t.Want)
		}
		if e.Err != nil {
			errs = append(errs, e)
		}
	}
	return errors.Join(errs...)
}

// differs returns nil if a parameter has the right value.
func (t Tunable) differs(dir string) *TunableError {
	b, err := os.ReadFile(filepath.Join(dir, t.Name))
	if err != nil {
		return &TunableError{Tunable: t, Err: err}
	}
	got := strings.TrimSpace(string(b))
	if n, err := strconv.ParseInt(got, 10, 64); err == nil && n == t.Want {
		return nil
	}
	return &TunableError{Tunable: t, Got: fmt.Sprintf("%.40q", got)}
}

func write(file string, n int64) error {
	return os.WriteFile(file, strconv.AppendInt(nil, n, 10), 0) // the file exists
}

// The range of oom_score_adj (proc(5)): never killed, and killed first.
const (
	LeastScore = -1000
	MostScore  = 1000
)

// SetOOMScore sets the OOM score adjustment of a process. file is [OwnScore], or the
// oom_score_adj file of another process. Only a privileged process may lower it. Processes that
// the process starts later inherit the score.
func SetOOMScore(file string, score int) error {
	if score < LeastScore || score > MostScore {
		return fmt.Errorf("OOM score adjustment is %d; want %d to %d", score, LeastScore, MostScore)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if got, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && got == score {
		return nil
	}
	return write(file, int64(score))
}
