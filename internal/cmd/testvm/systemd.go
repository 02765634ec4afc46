package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Paths of the files for systemd. None is in /run, because systemd mounts a new /run.
const (
	unitProgram = "/usr/local/sbin/" + runnerName
	unitPlan    = "/var/lib/testvm.json"
	units       = "/etc/systemd/system/"
)

// target is the systemd target of the machine. It starts the tests and basic services,
// but no other services that are installed on this system.
const target = `[Unit]
Requires=basic.target testvm.service
After=basic.target
AllowIsolate=yes
`

// service is the systemd unit that runs the tests. When the unit ends, systemd reboots the
// machine, and qemu exits.
var service = fmt.Sprintf(`[Unit]
Requires=basic.target dbus.service
After=basic.target dbus.service
SuccessAction=reboot-force
FailureAction=reboot-force

[Service]
Type=oneshot
ExecStartPre=mkdir -m 1777 %s
ExecStart=@%s %s
StandardOutput=tty
TTYPath=/dev/console
`, tempDir, unitProgram, runnerName)

// handOver replaces this program, process 1, by systemd. self is the content of this program's
// file, plan the plan as JSON. handOver returns only if it fails.
func handOver(self, plan []byte) error {
	for _, f := range []struct {
		name    string
		content []byte
		mode    os.FileMode
	}{
		{unitProgram, self, 0o755},
		{unitPlan, plan, 0o600},
		{units + "testvm.target", []byte(target), 0o644},
		{units + "testvm.service", []byte(service), 0o644},
	} {
		if err := os.WriteFile(f.name, f.content, f.mode); err != nil {
			return err
		}
	}
	const systemd = "/lib/systemd/systemd"
	err := unix.Exec(systemd, []string{systemd, "--unit=testvm.target", "--show-status=no"}, []string{"TERM=dumb"})
	return fmt.Errorf("start %s: %w", systemd, err)
}
