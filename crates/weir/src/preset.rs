//! Services by name, for `presets` of the configuration: their ports are those of `protected`.

/// A service whose connections and sockets a host should keep under a flood.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name in the file.
    pub name: &'static str,
    /// Its ports, as `protected` takes them.
    pub ports: &'static [u16],
    /// What they are.
    pub about: &'static str,
}

/// All of them: ports as IANA has them registered, or as the service's own documentation gives its default.
pub static ALL: [Preset; 11] = [
    Preset { name: "kubelet", ports: &[10250], about: "the kubelet's API" },
    Preset {
        name: "apiserver",
        ports: &[6443],
        about: "kube-apiserver, either end of a connection",
    },
    Preset { name: "etcd", ports: &[2379, 2380], about: "clients and peers" },
    Preset { name: "corosync", ports: &[5404, 5405], about: "totem" },
    Preset { name: "galera", ports: &[4567, 4568], about: "replication and state transfer" },
    Preset { name: "vrrp", ports: &[], about: "no port: it is never limited" },
    Preset { name: "dns", ports: &[53, 853], about: "DNS, and over TLS" },
    Preset { name: "ntp", ports: &[123], about: "NTP" },
    Preset { name: "syslog", ports: &[514, 6514], about: "syslog, and over TLS" },
    Preset { name: "voip", ports: &[3478, 5060, 5061, 5349], about: "SIP and STUN; not media" },
    Preset {
        name: "game",
        ports: &[2456, 7777, 8303, 25565, 27015, 27960, 30000, 30120, 64738],
        about: "Valheim, Unreal, DDNet, Minecraft, Source, Quake III, Luanti, FiveM, Mumble",
    },
];

impl Preset {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|each| each.name == name)
    }

    /// What it stands for, in a line.
    pub fn text(&self) -> String {
        if self.ports.is_empty() {
            return self.about.into();
        }
        let ports: Vec<String> = self.ports.iter().map(ToString::to_string).collect();
        format!("protects {} ({})", ports.join(", "), self.about)
    }
}
