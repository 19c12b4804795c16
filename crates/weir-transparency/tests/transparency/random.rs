use crate::duel::Duel;
pub fn run(_: &mut Duel) -> String {
    String::new()
}
