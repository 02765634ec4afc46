package podruntime

import (
	"errors"
	"fmt"
	"testing"
)

// call is an error of a runtime's call.
type call struct{ what string }

func (c call) Error() string   { return "start_container: rpc error: code = Unknown desc = " + c.what }
func (c call) Message() string { return c.what }

// What pods show of a failed call is what the runtime said.
func TestShown(t *testing.T) {
	for want, err := range map[string]error{
		"no such file":         call{"no such file"},
		"twice: no such file":  fmt.Errorf("twice: %w", call{"no such file"}),
		"boom":                 errors.New("boom"),
		"no such file\nbeside": errors.Join(&reasonError{ReasonRunContainer, call{"no such file"}}, errors.New("beside")),
	} {
		if got := shown(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
