// Package logs writes the entries of a zap.Logger as Kubernetes' components write
// theirs, so that whatever collects and parses those logs reads a node agent's as well:
//
//	I1122 23:40:05.123456    1234 node.go:42] "agent runs" logger="agent" socket="/run/agent.sock"
//	{"ts":1763854805123.456,"caller":"nodeagent/node.go:42","msg":"agent runs","logger":"agent","v":0,"socket":"/run/agent.sock"}
//
// [New] makes a Logger of the settings of a KubeletConfiguration; [Text] and [JSON]
// are encoders for a zapcore.Core of one's own. [FromSlog] is for programs that log with
// log/slog.
//
// # Verbosity
//
// The agent's lines have two levels: what is always told, klog's 0, and what only
// who looks for a mistake wants to know, klog's 4 ([DebugFrom]). A verbosity of 4
// and above shows the latter; VModule shows those of single files.
//
// # Differences
//
// In text every string is quoted, where klog writes one of several lines as it is:
// what a pod or a runtime said is always on one line. An error is err="..." in both.
//
// Tier: beta.
package logs
