package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Command runs a command and returns its output: stdout and stderr, interleaved or one after the
// other. [Exec] uses the first [MaxOutput] bytes of it. The error of a command that exited has a
// method ExitCode() int, like os/exec's, or ExitStatus() int, like that of k8s.io/utils/exec. The
// error after timeout is or wraps context.DeadlineExceeded, or is a gRPC status of that code. A
// Command may give up because of too much output: its error then has a method OutputLimit() int. If
// timeout is 0, the command has no timeout.
type Command func(ctx context.Context, command []string, timeout time.Duration) (output []byte, err error)

// Exec checks by a command's exit code.
type Exec struct {
	Command []string
	Run     Command
	// Slack is how long before the context's deadline the command's own timeout
	// ends, so that the runtime can report the timeout.
	Slack time.Duration
}

// ErrNoAnswer is wrapped by the error of [Exec.Check] if the runtime did not answer until the
// context ended. The command's own timeout is earlier, so the runtime hangs, and not the command.
var ErrNoAnswer = errors.New("the runtime did not report the command's result")

// Check runs the command. Exit code 0 is a Success; any other is a Failure with the
// output; a timeout and too much output are Failures. If the command could not be
// run, it returns an error.
func (e Exec) Check(ctx context.Context) (Outcome, string, error) {
	var timeout time.Duration
	if end, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(end)-e.Slack, time.Millisecond)
	}
	out, err := e.Run(ctx, e.Command, timeout)
	if len(out) > MaxOutput {
		out = out[:MaxOutput]
	}
	code, exited := exitCode(err)
	var large interface{ OutputLimit() int }
	switch {
	case err == nil, exited && code == 0:
		return Success, string(out), nil
	case exited && code < 0 && ctx.Err() != nil: // os/exec kills it with the context
		return Failure, fmt.Sprintf("command timed out after %v: %v", timeout.Round(time.Millisecond), err), nil //nolint:nilerr // it is the answer
	case exited:
		return Failure, string(out), nil
	case errors.As(err, &large):
		return Failure, err.Error(), nil
	case e.Slack > 0 && ctx.Err() != nil:
		return Unknown, "", fmt.Errorf("%w: %w", ErrNoAnswer, err)
	case timedOut(err):
		return Failure, fmt.Sprintf("command timed out after %v: %v", timeout.Round(time.Millisecond), err), nil
	default:
		return Unknown, "", err
	}
}

// exitCode returns the exit code in a command's error; negative if the command was
// killed.
func exitCode(err error) (code int, exited bool) {
	var byCode interface{ ExitCode() int }
	var byStatus interface{ ExitStatus() int }
	switch {
	case errors.As(err, &byCode):
		return byCode.ExitCode(), true
	case errors.As(err, &byStatus):
		return byStatus.ExitStatus(), true
	default:
		return 0, false
	}
}

// timedOut reports whether err is a context's timeout or a gRPC status DeadlineExceeded. The gRPC
// status is recognised by its text, "rpc error: code = DeadlineExceeded", so that this package does
// not import the 100 packages of gRPC.
func timedOut(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), "rpc error: code = DeadlineExceeded") {
			return true
		}
	}
	return false
}
