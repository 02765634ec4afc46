//go:build linux

package monitor

import (
	"reflect"
	"testing"
	"time"
)

func TestExecutorsMessageIsTakenFromItsLog(t *testing.T) {
	for in, want := range map[string]string{
		`{"level":"error","msg":"exec: \"x\": not found","time":"t"}`: `exec: "x": not found`,
		`{"level":"error"}`: `{"level":"error"}`,
		`{"level":`:         `{"level":`,
		`time="2026-01-02T03:04:05Z" level=error msg="no \"x\"" more=1`: `no "x"`,
		`time="2026-01-02T03:04:05Z" level=error msg="no end`:           `time="2026-01-02T03:04:05Z" level=error msg="no end`,
		"runc: failed": "runc: failed",
		"":             "",
	} {
		if got := executorMessage(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// A container that is handed to a successor is the one that comes back.
func TestKeptIsToldWhole(t *testing.T) {
	at := time.Unix(1767323045, 6)
	c := Container{
		ID: "a", Create: []string{"/c", "x"}, Start: []string{"/s"}, Dir: "/d", PIDFile: "/p", ExecutorLog: "/e", ConsoleSocket: "/t", FIFODir: "/f",
		ExitFile: "/x", Log: "/l", Stdin: true, StdinOnce: true, Terminal: true, OOMFile: "/o", Record: []byte("r"), Timeout: time.Second,
	}
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("field %s is not set by the test", v.Type().Field(i).Name)
		}
	}
	for _, k := range []Kept{
		{Container: c},
		{Container: c, Started: &Started{PID: 7, At: at, StartTime: 9}, StdinShut: true},
		{Container: c, Started: &Started{PID: 7, At: at, StartTime: 9}, Exit: &Exit{ID: "a", Code: -1, StartedAt: at, At: at, OOM: true, LostLogBytes: 5, Reason: "r"}},
		{Container: c, StartError: &StartError{Step: "create", Message: "m"}},
	} {
		if got := keptOf(adoptMessage(k)); !reflect.DeepEqual(got, k) {
			t.Errorf("got  %+v\nwant %+v", got, k)
		}
	}
}
