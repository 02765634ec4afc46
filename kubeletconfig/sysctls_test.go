package kubeletconfig

import (
	"strings"
	"testing"
)

func TestDefaultPodSysctls(t *testing.T) {
	const on = "featureGates: {DefaultPodSysctls: true}\n"
	for content, wrong := range map[string]string{
		on + "defaultPodSysctls: {net.core.somaxconn: '4096', kernel/shmall: '1', fs.mqueue.msg_max: '9', kernel.domainname: x, user.max_user_namespaces: '5'}": "",
		"defaultPodSysctls: {}":                                                      "",
		"defaultPodSysctls: {net.core.somaxconn: '4096'}":                            "defaultPodSysctls: 1: want none, or featureGates.DefaultPodSysctls: true",
		on + "defaultPodSysctls: {vm.swappiness: '1'}":                               `defaultPodSysctls[vm.swappiness]: "1": want a sysctl of a namespace`,
		on + "defaultPodSysctls: {kernel.hostname: x}":                               "want a sysctl of a namespace",
		on + "defaultPodSysctls: {Net.core: '1'}":                                    "want the name of a sysctl",
		on + "defaultPodSysctls: {net.../x: '1'}":                                    "want the name of a sysctl",
		on + "defaultPodSysctls: {net.core.somaxconn: '1', net/core/somaxconn: '2'}": "want each sysctl once",
		on + `defaultPodSysctls: {net.core.somaxconn: "1\n2"}`:                       "want a value of one line",
		on + "defaultPodSysctls: {net." + strings.Repeat("a", 300) + ": '1'}":        "want the name of a sysctl",
		on + "defaultPodSysctls: {net.ipv4.conf.eth0/1.rp_filter: '1'}":              "",
		on + "defaultPodSysctls: {kernel.sem_next_id: '1'}":                          "want a sysctl of a namespace",
	} {
		_, warnings, err := fromFile(t, content)
		if wrong == "" && (err != nil || len(warnings) > 0) || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%.200s: %v, warnings %q; want %q", content, err, warnings, wrong)
		}
	}
}
