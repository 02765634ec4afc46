package csi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/pluginconn"
	"github.com/nodewright/nodewright/volumemgr"
)

// The errors of this package. Match them with errors.Is.
var (
	// ErrNoDriver means that no driver of that name is registered.
	ErrNoDriver = errors.New("the CSI driver is not registered")
	// ErrUnsupported means that the driver lacks the capability.
	ErrUnsupported = errors.New("the CSI driver lacks the capability")
)

// CallError is the error of a call to a driver, including a call that never reached the driver.
type CallError struct {
	Driver string
	Method string // of the Node service, such as NodePublishVolume
	Code   codes.Code
	Text   string // the driver's message, shortened and without secrets
}

// Error names the driver, the method, the driver's message and the code.
func (e *CallError) Error() string {
	return fmt.Sprintf("CSI driver %s: %s: %s (%s)", e.Driver, e.Method, e.Text, e.Code)
}

// Final reports whether the call has ended at the driver and has had no effect.
func (e *CallError) Final() bool { return final(e.Code) }

// Is reports whether the error counts as target.
//
// A call that may still be running is [volumemgr.ErrUncertain]. FAILED_PRECONDITION for a
// publication is [volumemgr.ErrNoDevice]: a driver returns this code if it has lost the staged
// volume, which is then staged again. If the driver had another reason, staging again is
// harmless, since NodeStageVolume is idempotent (CSI specification).
func (e *CallError) Is(target error) bool {
	switch target {
	case volumemgr.ErrUncertain:
		return !e.Final()
	case volumemgr.ErrNoDevice:
		return e.Code == codes.FailedPrecondition && e.Method == "NodePublishVolume"
	}
	return false
}

// final reports whether a code means that the call has ended. The other codes mean that the
// driver is busy, unreachable or slow, or that the caller gave up (CSI specification, "Error
// Scheme").
func final(code codes.Code) bool {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// callError returns a CallError for an error of gRPC. An error that is not an answer of the
// driver counts as Unavailable, which is not final, since the driver may have received the call.
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

// redact replaces the values of secrets in a driver's message. Values of less than four bytes are
// kept, since they may be part of any word. Space around a value is ignored: secrets often come
// from files that end in a newline.
func redact(text string, secrets map[string]string) string {
	values := make([]string, 0, len(secrets))
	for _, v := range secrets {
		if v = strings.TrimSpace(v); len(v) >= 4 {
			values = append(values, v)
		}
	}
	// Longest first, since a value may contain another one.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, v := range values {
		text = strings.ReplaceAll(text, v, "***")
	}
	return text
}

// brief cuts a driver's message to pluginconn.MaxText bytes, at a character boundary.
func brief(s string) string {
	return callerror.Cut(strings.ToValidUTF8(s, "?"), pluginconn.MaxText)
}

// transient returns err as an error of an operation that changed nothing
// ([volumemgr.ErrTransient]). The volume manager tries again, and no teardown is needed.
func transient(err error) error {
	return fmt.Errorf("%w: %w", err, volumemgr.ErrTransient)
}
