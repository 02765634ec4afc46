package network

// JobVar is the variable that names a job for a process of the test binary, and
// Jobs are those there are. They return what the process exits with.
const JobVar = "NODEWRIGHT_NETWORK_JOB"

// Jobs are by name.
var Jobs = map[string]func() int{}
