package csi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/volumemgr"
)

// Errors that say more than their text.
var (
	// ErrNoDriver means that no driver of that name is registered now.
	ErrNoDriver = errors.New("the CSI driver is not registered")
	// ErrUnsupported means that a driver lacks the capability.
	ErrUnsupported = errors.New("the CSI driver lacks the capability")
)

// CallError is how a call to a driver failed. It is also made for calls that never
// reached the driver.
type CallError struct {
	Driver string
	Method string // of the Node service, such as NodePublishVolume
	Code   codes.Code
	Text   string // the driver's, cut and without secrets
}

// Error names the driver, the method, the driver's message and the code.
func (e *CallError) Error() string {
	return fmt.Sprintf("CSI driver %s: %s: %s (%s)", e.Driver, e.Method, e.Text, e.Code)
}

// Final reports whether the driver has given up: nothing of the call goes on, and
// nothing came of it.
func (e *CallError) Final() bool { return final(e.Code) }

// Is has calls that may go on count as [volumemgr.ErrUncertain], and a driver that
// finds a volume unfit for its publication as [volumemgr.ErrNoDevice]: FAILED_PRECONDITION
// is the answer of a driver that lost what it staged. To stage once more is harmless
// where something else was amiss, as NodeStageVolume is idempotent (CSI specification).
func (e *CallError) Is(target error) bool {
	switch target {
	case volumemgr.ErrUncertain:
		return !e.Final()
	case volumemgr.ErrNoDevice:
		return e.Code == codes.FailedPrecondition && e.Method == "NodePublishVolume"
	}
	return false
}

// final reports which codes end a call for good. The others mean that the driver is
// busy, away or slow, or that the call was given up here (CSI specification,
// "Error Scheme").
func final(code codes.Code) bool {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// maxText is how many bytes of a driver's message are kept.
const maxText = 1 << 10

// callError makes a CallError of what gRPC returned. What is no answer of the driver
// counts as Unavailable, which is not final: the driver may have heard the call.
func callError(driver, method string, err error, secrets map[string]string) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	code, text := codes.Unavailable, err.Error()
	if ok {
		code, text = st.Code(), st.Message()
	}
	return &CallError{Driver: driver, Method: method, Code: code, Text: brief(redact(text, secrets))}
}

// redact replaces the values of secrets in a driver's message. Values of less than
// four bytes are left: they may be part of any word. Blanks around a value are
// ignored, as a file that ends with a newline is often a secret's source.
func redact(text string, secrets map[string]string) string {
	values := make([]string, 0, len(secrets))
	for _, v := range secrets {
		if v = strings.TrimSpace(v); len(v) >= 4 {
			values = append(values, v)
		}
	}
	// One that is part of another must not leave the rest of it.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, v := range values {
		text = strings.ReplaceAll(text, v, "***")
	}
	return text
}

// brief cuts a driver's message to maxText, and not in the middle of a character.
func brief(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}

// transient wraps what has changed nothing: the volume manager tries again, and owes
// no tear-down for it.
func transient(err error) error {
	return fmt.Errorf("%w: %w", err, volumemgr.ErrTransient)
}
